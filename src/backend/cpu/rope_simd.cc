#include "backend/cpu/element_simd.h"
#include "backend/cpu/simd/vec_math.h"
#include "backend/cpu/simd/vec_runs.h"

namespace bl::cpu::BL_ISA {
namespace {

void rotate_halves(const RopeTable& table, const RopeRow& row, float* head) {
  for (int i = 0; i < row.count; i += 16) {
    const int n = row.count - i < 16 ? row.count - i : 16;
    const F32x16 c = F32x16::load(table.cos + i);
    const F32x16 s = F32x16::load(table.sin + i);
    const F32x16 a = load(head + i, n);
    const F32x16 b = load(head + row.second + i, n);
    store(a * c - b * s, head + i, n);
    store(b * c + a * s, head + row.second + i, n);
  }
}

void rotate_pairs(const RopeTable& table, const RopeRow& row, float* head) {
  const int elements = 2 * row.count;
  for (int i = 0; i < elements; i += 16) {
    const int n = elements - i < 16 ? elements - i : 16;
    const F32x16 x = load(head + i, n);
    const F32x16 turned =
        x * F32x16::load(table.cos + i) + swap_lanes<1>(x) * F32x16::load(table.sin + i);
    store(turned, head + i, n);
  }
}

}  // namespace

void rope_table(const RopeAngles& angles, RopeTable* table) {
  const F32x16 position = F32x16::splat(angles.position);
  const F32x16 scale = F32x16::splat(angles.scale);
  for (int i = 0; i < angles.count; i += 16) {
    const int n = angles.count - i < 16 ? angles.count - i : 16;
    const SinCos turn = sin_cos(position * load(angles.inv_freq + i, n));
    const F32x16 c = turn.cos * scale;
    const F32x16 s = turn.sin * scale;
    if (!angles.interleaved) {
      c.store(table->cos + i);
      s.store(table->sin + i);
      continue;
    }
    float cosine[16];
    float sine[16];
    c.store(cosine);
    s.store(sine);
    for (int j = 0; j < 16; ++j) {
      const int at = 2 * (i + j);
      table->cos[at] = table->cos[at + 1] = cosine[j];
      table->sin[at] = -sine[j];
      table->sin[at + 1] = sine[j];
    }
  }
}

void rope(const RopeTable& table, const RopeRow& row) {
  for (std::int64_t h = 0; h < row.heads; ++h) {
    float* head = row.first + h * row.head_dim;
    if (row.interleaved) {
      rotate_pairs(table, row, head);
    } else {
      rotate_halves(table, row, head);
    }
  }
}

}  // namespace bl::cpu::BL_ISA
