"""The cluster frontier: one job divided into partitions by politeness slot. Each partition is a frontier."""
