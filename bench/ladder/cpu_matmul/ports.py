#!/usr/bin/env python3
"""Prints a C++ program that measures how many vector instructions a cycle one core takes.

  python3 ports.py > ports.cc && g++ -O2 -mavx512f ports.cc -o ports && ./ports 2.95   # clock in GHz

Needs AVX-512 with VNNI, BF16 and FP16. Written in assembly: sums in an array of vectors are spilled by
GCC 12, and then the store unit is what one measures.
"""

INSTRUCTIONS = {
    "vpdpbusd zmm": "vpdpbusd %zmm30,%zmm31,%zmm{i}",
    "vpdpbusd zmm, operand broadcast from memory": "vpdpbusd {offset}(%rsi){{1to16}},%zmm31,%zmm{i}",
    "vpdpbusd ymm": "vpdpbusd %ymm30,%ymm31,%ymm{i}",
    "vpdpwssd zmm": "vpdpwssd %zmm30,%zmm31,%zmm{i}",
    "vpdpwssd zmm, operand broadcast from memory": "vpdpwssd {offset}(%rsi){{1to16}},%zmm31,%zmm{i}",
    "vpdpwssd ymm": "vpdpwssd %ymm30,%ymm31,%ymm{i}",
    "vpmaddubsw zmm": "vpmaddubsw %zmm30,%zmm31,%zmm{i}",
    "vpmaddubsw + vpaddw zmm": "vpmaddubsw %zmm30,%zmm31,%zmm29\\nvpaddw %zmm29,%zmm{i},%zmm{i}",
    "vpdpbusd + vpmaddubsw zmm":
        "vpdpbusd %zmm30,%zmm31,%zmm{i}\\nvpmaddubsw %zmm30,%zmm31,%zmm29",
    "vdpbf16ps zmm": "vdpbf16ps %zmm30,%zmm31,%zmm{i}",
    "vfmadd231ps zmm": "vfmadd231ps %zmm30,%zmm31,%zmm{i}",
    "vfmadd231ph zmm": "vfmadd231ph %zmm30,%zmm31,%zmm{i}",
}
CHAINS = 24
CLOBBERED = ",".join(f'"xmm{i}"' for i in range(32))


def escape(text):
    return text.replace("%", "%%").replace("{", "%{").replace("}", "%}")


print("#include <chrono>\n#include <cstdio>\n#include <cstdlib>\nstatic char memory[4096];")
print("static double now() { using namespace std::chrono;"
      " return duration<double>(steady_clock::now().time_since_epoch()).count(); }")
print("int main(int argc, char** argv) { const double ghz = argc > 1 ? atof(argv[1]) : 1.0;")
for name, form in INSTRUCTIONS.items():
    body = "\\n".join(escape(form.format(i=i, offset=4 * i)) for i in range(CHAINS))
    print(f'{{ const double t = now(); long n = 10000000;'
          f' asm volatile("1:\\n{body}\\ndec %0\\njnz 1b" : "+r"(n) : "S"(memory)'
          f' : {CLOBBERED}, "memory"); const double rate = {CHAINS} * 1e-2 / (now() - t);'
          f' printf("%-45s %6.2f G/s %5.2f a cycle\\n", "{name}", rate, rate / ghz); }}')
print("}")
