"""Programs that measurements of charts start."""
