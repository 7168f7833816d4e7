"""A differential layout oracle for NVFP4 KV caches: where did every byte go, and who agrees?"""

__version__ = "0.1.0"
