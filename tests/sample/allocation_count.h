#pragma once

namespace bl::test {

// How often this thread has called operator new, which the program replaces to count.
long allocation_count();

}  // namespace bl::test
