"""What decides which dataflows run where: placement on replicas, reconciliation with the catalog, holds."""
