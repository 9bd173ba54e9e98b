#include "backend/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace bl::cpu {
namespace {

#if defined(__x86_64__)

bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
}

// __builtin_cpu_supports() evaluates CPUID and XGETBV, so it reports a set as missing if the
// operating system does not save its registers.
std::vector<Isa> detect() {
  std::vector<Isa> isas{Isa::kPortable};
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2")) {
    return isas;
  }
  isas.push_back(Isa::kAvx2);  // every processor with AVX2 also has F16C, which converts binary16
  if (has_avx_vnni()) isas.push_back(Isa::kAvxVnni);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni")) {
    isas.push_back(Isa::kAvx512);
  }
  return isas;
}

#else

std::vector<Isa> detect() { return {Isa::kPortable}; }

#endif

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "AVX2";
    case Isa::kAvxVnni:
      return "AVX2 + AVX-VNNI";
    case Isa::kAvx512:
      return "AVX-512 VNNI";
  }
  return "?";
}

std::vector<Isa> available_isas() { return detect(); }

bool fetches_line_pairs() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

}  // namespace bl::cpu
