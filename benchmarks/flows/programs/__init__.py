"""Programs that measurements of flows start as processes of their own."""
