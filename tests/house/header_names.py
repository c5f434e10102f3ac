"""Which header gives which name, for headers that are not compiled alone (cmake/headers.cmake)."""

import re

# Standard headers, each with the names of namespace std that it gives; a name may have several.
STANDARD = {
    "algorithm": "max min ranges sort",
    "array": "array size ssize",
    "atomic": "atomic",
    "bit": "bit_cast",
    "chrono": "chrono",
    "cmath": "exp fabs fmin ilogb isnan ldexp log nearbyint signbit",
    "condition_variable": "condition_variable",
    "cstddef": "byte nullptr_t",
    "cstdio": "FILE fprintf snprintf",
    "cstdlib": "aligned_alloc free",
    "cstring": "memcpy",
    "deque": "deque initializer_list size ssize",
    "exception": "exception exception_ptr",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream",
    "functional": "equal_to function greater hash less",
    "future": "future",
    "initializer_list": "initializer_list",
    "iterator": "size ssize",
    "limits": "numeric_limits",
    "list": "list",
    "map": "initializer_list map multimap pair size ssize",
    "memory": "allocator enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "mutex unique_lock",
    "new": "bad_alloc",
    "numeric": "iota",
    "optional": "nullopt optional",
    "queue": "priority_queue",
    "random": "minstd_rand mt19937",
    "ranges": "ranges",
    "set": "initializer_list multiset set size ssize",
    "source_location": "source_location",
    "span": "as_bytes size span ssize",
    "stdexcept": "logic_error runtime_error",
    "stop_token": "stop_source stop_token",
    "string": "hash initializer_list size ssize stoll string string_view to_string u32string u32string_view",
    "string_view": "size ssize string_view u32string_view",
    "thread": "thread",
    "type_traits": "is_trivially_copyable_v",
    "unordered_map": "pair unordered_map",
    "unordered_set": "unordered_set",
    "utility": "forward move pair swap",
    "variant": "get_if holds_alternative monostate variant",
    "vector": "initializer_list size ssize vector",
}
GIVERS = {}
for header, names in STANDARD.items():
    for name in names.split():
        GIVERS.setdefault(f"std::{name}", set()).add(header)

FIXED_WIDTH = re.compile(r"\bu?int(?:8|16|32|64)_t\b")
LIBRARIES = {"at": "ATen/", "fmt": "fmt/", "nlohmann": "nlohmann/"}
NAMED = re.compile(r"\b(std|at|fmt|nlohmann)::(\w+)")


def names_of(code):
    """Yields (offset, name, headers or the beginnings of headers that give it); none where no header is known to."""
    for match in NAMED.finditer(code):
        space = match.group(1)
        yield match.start(), match.group(0), {LIBRARIES[space]} if space in LIBRARIES else GIVERS.get(match.group(0))
    for match in FIXED_WIDTH.finditer(code):
        yield match.start(), match.group(0), {"cstdint"}
