"""A measurement between two machines over ssh: freshness, throughput and processor time, on a path with network cards."""
