"""The CI database: what is known about clusters, their queues, nodes, limits and prices, from where, and how old it is."""
