"""What `import stageline` offers to programs, and what the commands stand on; docs/python.md shows it."""
