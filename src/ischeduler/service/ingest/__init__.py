"""Events from inside jobs on their way to the store: by Kafka, by HTTP, or from spools. One check and one sink for all three."""
