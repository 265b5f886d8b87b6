"""The reference pages that are made from the code: what a flag, a setting or a route is called is said there once."""
