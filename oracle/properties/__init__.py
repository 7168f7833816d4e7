"""What any store of an NVFP4 KV cache promises, one property each, checked on cases as JSON."""
