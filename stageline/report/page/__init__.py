"""The report as one HTML page that opens from disk: no network, no server, its data packed inside."""
