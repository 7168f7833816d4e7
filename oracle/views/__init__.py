"""Which byte of a cache tensor belongs to whom, answered by algebra on shapes and strides."""
