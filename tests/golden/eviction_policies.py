"""What a fast tier holds under LRU and FIFO, by the cachetools package, for tests/methods/eviction/*_test.cpp.

    pip install cachetools
    python tests/golden/eviction_policies.py

Writes eviction_policies/NAME.json. Contexts of 1 to 40 bytes are used in a random order, the same for both; a context that
is not held is stored anew. A case holds the capacity, the sizes, and for every use the context and those that are held
after it as bits of a hexadecimal number. In the case of FIFO a context that has left is not used again: here it would come
back as a new one, in the tests it stays on the slower tier. LFU is not compared: cachetools forgets how often what left
was used, and breaks ties otherwise. Written for cachetools 5.5.
"""

from by_method import write
from cachetools import FIFOCache, LRUCache
from random_stream import draw


def case(policy, seed, returns):
    sizes = [1 + draw(seed, "policy sizes", i) % 40 for i in range(48)]
    cache = policy(maxsize=150, getsizeof=sizes.__getitem__)
    uses, seen = [], set()
    for event in range(400):
        context = min(draw(seed, "policy uses", 3 * event) % 48, draw(seed, "policy uses", 3 * event + 1) % 48)
        if context in seen and context not in cache and not returns:
            continue
        if context in cache:
            cache[context]
        else:
            cache[context] = context
        seen.add(context)
        uses.append([context, f"{sum(1 << held for held in cache):x}"])
    return {"capacity": 150, "sizes": sizes, "uses": uses}


if __name__ == "__main__":
    for name, policy, returns in (("lru", LRUCache, True), ("fifo", FIFOCache, False)):
        write(__file__, name, {"cases": [case(policy, seed, returns) for seed in range(3)]})
