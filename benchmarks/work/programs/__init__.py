"""Programs that measurements of work start as processes of their own."""
