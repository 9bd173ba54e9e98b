#pragma once
// Rows and rules for the op `sample`: of all kinds, sizes and degrees of evil.

#include <cstdint>
#include <random>
#include <vector>

#include "ops/sample.h"

namespace bl::test {

// What a step hands to the op, on the host.
struct SampleCase {
  std::int64_t vocab = 0;
  std::vector<float> logits;  // [rows, vocab]
  std::vector<SampleRule> rules;
  std::vector<LogitEdit> edits;
};

// `rows` random rows of every shape (peaked, flat, full of equals, with −∞, damaged ones), each
// with random parameters: plain, truncated in every way, edited, greedy, left out.
SampleCase random_sample_case(std::mt19937_64& random, std::int64_t vocab, std::int64_t rows);

}  // namespace bl::test
