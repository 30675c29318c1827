"""The compute controller: decides which dataflows run on which replicas, reconciles that with the catalog, and holds
inputs readable.
"""
