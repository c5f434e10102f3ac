// The program text of the target that owns the precompiled header; it has nothing to say of its own.
