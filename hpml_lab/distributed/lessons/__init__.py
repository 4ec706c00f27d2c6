"""To be read: DDP, the ring, buckets, DataParallel, the alpha-beta model, batches of sentences, and SyncBatchNorm."""
