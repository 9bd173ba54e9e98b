#include "sample/sample_row.h"

#include <algorithm>
#include <cmath>

#include "sample/row_kernels.h"

namespace bl {

std::span<float> SampleRow::edit() {
  if (logits.data() != edited.data() || logits.empty()) {
    edited.assign(logits.begin(), logits.end());
    logits = edited;
  }
  return edited;
}

void SampleRow::clear() {
  ids.clear();
  scores.clear();
  weights.clear();
  mass = 0;
}

void SampleRow::push(std::int32_t id, float score) {
  ids.push_back(id);
  scores.push_back(score);
}

void SampleRow::weigh() {
  weights.resize(scores.size());
  mass = row_kernels().weigh(scores.data(), weights.data(), scores.size());
}

void SampleRow::rebase() {
  const float best = *std::max_element(scores.begin(), scores.end());
  for (float& score : scores) score -= best;
  weigh();
}

double SampleRow::entropy() const {
  // −Σ p ln p = ln m − Σ w·s / m, with p = w / m and s = ln w.
  double sum = 0;
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0.0f) continue;
    sum += static_cast<double>(weights[i]) * static_cast<double>(scores[i]);
    total += static_cast<double>(weights[i]);
  }
  return std::max(0.0, std::log(total) - sum / total);
}

}  // namespace bl
