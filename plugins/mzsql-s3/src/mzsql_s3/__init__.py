"""mzsql's Blob store on S3 and on what speaks its API: ``s3://bucket/prefix?endpoint=…&region=…``."""
