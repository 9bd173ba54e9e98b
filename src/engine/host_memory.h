#pragma once
#include <cstdint>

namespace bl {

// Bytes that this process may still allocate before the machine or its cgroup runs out of memory:
// the minimum of MemAvailable and of what each enclosing cgroup (v1 or v2) leaves, with page cache
// counted as free. UINT64_MAX where neither is known.
std::uint64_t available_host_memory();

// The peak resident memory of this process so far, in bytes.
std::uint64_t peak_host_memory();

}  // namespace bl
