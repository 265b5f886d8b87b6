"""The reference pages that are generated from the code: flags, settings, routes."""
