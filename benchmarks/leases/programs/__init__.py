"""Programs that measurements of leases start as processes of their own."""
