"""Golden draws of harness/core/random.h, written from its description alone.

A stream's key is mix(seed), then for each byte c of the purpose mix(key ^ c); draw i is mix(key ^ mix(i)), where mix
adds 0x9e3779b97f4a7c15 and applies SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number
generators", 2014). Run: python3 random_stream.py
"""

M = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M
    return x ^ (x >> 31)


def draw(seed, purpose, index):
    key = mix(seed)
    for c in purpose.encode():
        key = mix(key ^ c)
    return mix(key ^ mix(index))


def uniform(seed, purpose, count):
    """RandomStream(seed, purpose).uniform(0 .. count-1)."""
    import numpy as np  # only scripts that draw many numbers need it

    key = mix(seed)
    for c in purpose.encode():
        key = mix(key ^ c)
    x = np.arange(count, dtype=np.uint64)
    for step in range(2):  # mix(key ^ mix(index))
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
        if step == 0:
            x = x ^ np.uint64(key)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


if __name__ == "__main__":
    assert mix(0) == 0xE220A8397B1DCDAF  # first output of SplitMix64 with seed 0
    for seed, purpose, index in [(0, "", 0), (0, "", 1), (1, "", 0), (42, "sampling", 7), (M, "größe", M)]:
        bits = draw(seed, purpose, index)
        print(f'{{{seed}u, "{purpose}", {index}u, 0x{bits:016x}u, {(bits >> 11) * 2.0**-53!r}, {bits * 1000 >> 64}u}},')
