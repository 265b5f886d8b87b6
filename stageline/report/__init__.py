"""What a run leaves behind: records, digest, summary, tables and pictures. See docs/run-directory.md."""
