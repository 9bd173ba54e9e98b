#pragma once
#include <cstdint>

namespace bl::test {

// Of the operator new of a program that has failing_new.cc: while `counting`, each allocation takes
// one off `left`, and the one that makes it 0 fails. For programs of one thread.
struct FailingNew {
  static bool counting;
  static std::int64_t left;
  static std::int64_t bytes;  // asked for
};

}  // namespace bl::test
