// Compiled once for each instruction set, in namespace bl::BL_ISA, and without contraction
// (CMakeLists.txt). No function here may have external linkage outside of that namespace: the
// linker would keep one copy for all sets.

#include "convert/rounding_kernels.h"

namespace bl::BL_ISA {
namespace {

// Vectors of GCC and Clang, in as many registers as the instruction set needs.
constexpr std::int64_t kLanes = 16;
using Floats [[gnu::vector_size(64)]] = float;
using Ints [[gnu::vector_size(64)]] = std::int32_t;
using Bytes [[gnu::vector_size(16)]] = std::uint8_t;
using EightFloats [[gnu::vector_size(32)]] = float;
using EightDoubles [[gnu::vector_size(64)]] = double;

// Vectors in memory, which is aligned for their elements alone. No function takes or returns a
// vector by value: how that is done depends on the instruction set.
template <class Vector>
struct [[gnu::packed, gnu::may_alias]] InMemory {
  Vector vector;
};
template <class Vector, class T>
const InMemory<Vector>& at(const T* p) {
  return *reinterpret_cast<const InMemory<Vector>*>(p);
}
template <class Vector, class T>
InMemory<Vector>& at(T* p) {
  return *reinterpret_cast<InMemory<Vector>*>(p);
}

// The nearest whole numbers of the range, ties to even (round_even of ops/grid_math.h).
inline void to_codes(Floats& x, const Floats& low, const Floats& high) {
  constexpr float kRound = 12582912.0f;
  x = x < low ? low : x;
  x = high < x ? high : x;
  x = (x + kRound) - kRound;
}

// What float_to_half() and half_to_float() of tensor/float16.h, one behind the other, make of x.
inline void to_halves(Floats& x) {
  const Ints bits = __builtin_bit_cast(Ints, x);
  const Ints magnitude = bits & 0x7fffffff;
  // Below the smallest normal half, float itself rounds at the half's last bit.
  const Floats small = (__builtin_bit_cast(Floats, magnitude) + 0.5f) - 0.5f;
  Ints half = (magnitude + (0xfff + ((magnitude >> 13) & 1))) & ~0x1fff;
  half = magnitude < 0x38800000 ? __builtin_bit_cast(Ints, small) : half;
  const Ints infinity = magnitude * 0 + 0x7f800000;
  half = magnitude >= 0x477ff000 ? infinity : half;
  half = magnitude > 0x7f800000 ? infinity | 0x400000 : half;
  half |= bits ^ magnitude;
  x = __builtin_bit_cast(Floats, half);
}

void sum_errors(const ErrorSum& args) {
  const Floats none{};
  for (std::int64_t c = 0; c < args.columns; c += kLanes) {
    const Floats scale = at<Floats>(args.scale + c).vector;
    const Floats inverse = scale > none ? 1.0f / scale : none;
    const Floats low = -at<Floats>(args.zero + c).vector;
    const Floats high = args.last - at<Floats>(args.zero + c).vector;
    Floats sum{};
    const float* weights = args.weights + c;
    for (std::int64_t r = 0; r < args.slots; ++r, weights += args.stride) {
      const Floats weight = at<Floats>(weights).vector;
      Floats code = weight * inverse;
      to_codes(code, low, high);
      const Floats error = weight - code * scale;
      sum += args.importance[r] * error * error;
    }
    at<Floats>(args.errors + c).vector = sum;
  }
}

void round_slot(const SlotRounding& args) {
  const Floats none{};
  for (std::int64_t c = 0; c < args.columns; c += kLanes) {
    const Floats scale = at<Floats>(args.scale + c).vector;
    const Floats zero = at<Floats>(args.zero + c).vector;
    const Floats wanted = at<Floats>(args.wanted + c).vector;
    Floats code = scale > none ? wanted / scale : none;
    to_codes(code, -zero, args.last - zero);
    Floats value = code * scale;
    to_halves(value);
    at<Floats>(args.values + c).vector = value;
    at<Floats>(args.errors + c).vector = (wanted - value) * args.inverse_pivot;
    const Ints stored = __builtin_convertvector(code + zero, Ints);
    at<Bytes>(args.codes + c).vector = __builtin_convertvector(stored, Bytes);
  }
}

// The squares of floats are exact in double, so that contraction would change nothing.
void sum_squares(const SquareSum& args) {
  for (std::int64_t s = 0; s < args.slots; s += 8) {
    EightDoubles sum{};
    const float* errors = args.errors + s;
    for (std::int64_t c = 0; c < args.columns; ++c, errors += args.stride) {
      const EightDoubles error =
          __builtin_convertvector(at<EightFloats>(errors).vector, EightDoubles);
      sum += error * error;
    }
    at<EightDoubles>(args.sums + s).vector = sum;
  }
}

}  // namespace

extern const RoundingKernels kRoundingKernels;
const RoundingKernels kRoundingKernels{sum_errors, round_slot, sum_squares};

}  // namespace bl::BL_ISA
