"""Who is asking, what they may do, and a record of what they did."""
