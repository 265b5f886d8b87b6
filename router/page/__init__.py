"""GET /: a page for people, which shows what runs here and what it is doing."""
