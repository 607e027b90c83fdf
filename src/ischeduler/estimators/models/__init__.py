"""Model references: what a user's words for a model mean, how it is built, and what one batch of it looks like."""
