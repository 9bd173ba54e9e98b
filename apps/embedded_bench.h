#pragma once
#include <string_view>

namespace bl {

// archs/bench/shapes.json as it was when the program was built.
std::string_view embedded_bench_shapes();

}  // namespace bl
