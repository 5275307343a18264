"""The five tools: their models, what they do, and the table that lists them."""
