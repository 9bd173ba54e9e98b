#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/ops/row_ops.h"

namespace bl::cuda {
namespace {

template <class T, int kPack>
struct Embed {
  const std::int32_t* ids;
  Rows<const T> table;
  Rows<float> out;
  float multiplier;
  bool accumulate;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    // −1: a step before this one has found nothing; whoever reads its result knows.
    const auto stored = load_pack<kPack>(table[max(ids[row], 0)] + column);
    float* to = out[row] + column;
    Pack<float, kPack> result{};
    if (accumulate) result = load_pack<kPack>(to);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      // Rounded before it is added, so that both ways give the same value.
      const float value = exact_mul(float_of(stored.at[i]), multiplier);
      result.at[i] = accumulate ? exact_add(result.at[i], value) : value;
    }
    store_pack(to, result);
  }
};

}  // namespace

void embed(ExecContext& ctx, const EmbedArgs& args) {
  const bool fours = takes_packs(args.table, 4) && takes_packs(args.out, 4);
  visit_float_dtype(args.table.dtype, [&]<class T>(Tag<T>) {
    with_pack_size(fours, [&]<int kPack>(std::integral_constant<int, kPack>) {
      for_each_element<kPack>(
          ctx, args.tokens, args.out.columns(),
          Embed<T, kPack>{args.ids, rows_of<const T>(args.table), rows_of<float>(args.out),
                          args.multiplier, args.accumulate});
    });
  });
}

}  // namespace bl::cuda
