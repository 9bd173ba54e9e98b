#pragma once
#include <string_view>

namespace bl {

// Data files of archs/ that commands use, as they were when the program was built.
std::string_view embedded_bench_shapes();  // archs/bench/shapes.json
std::string_view embedded_eval_bos();      // archs/eval/bos.json

}  // namespace bl
