#pragma once
#include <cstdint>

namespace bl {

// Bytes that this process may still take before the machine or its cgroup runs out: the smaller of
// MemAvailable and what every enclosing cgroup (v1 or v2) leaves, page cache counted as free.
// UINT64_MAX where nothing can be learnt.
std::uint64_t available_host_memory();

// The most memory that this process has had resident so far, in bytes.
std::uint64_t peak_host_memory();

}  // namespace bl
