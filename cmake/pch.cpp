// The program text of targets that own a precompiled header; it has nothing to say of its own.
