"""One job divided into partitions by politeness slot, each of which is a frontier."""
