#pragma once
// Reading answers in tests: whole and cut, with the events brought into a form that can be
// compared.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "toolcall/answer_parser.h"

namespace bl::test {

// Joins text that arrived in several events of the same kind.
std::vector<AnswerEvent> joined(const std::vector<AnswerEvent>& events);

// The events of an answer that arrives whole, byte by byte, and in random pieces.
std::vector<AnswerEvent> read_whole(AnswerParser parser, std::string_view text);
std::vector<AnswerEvent> read_bytes(AnswerParser parser, std::string_view text);
std::vector<AnswerEvent> read_pieces(AnswerParser parser, std::string_view text,
                                     std::uint64_t seed);

ParsedAnswer parsed(const std::vector<AnswerEvent>& events);

// The events as text, for messages of tests.
std::string shown(const std::vector<AnswerEvent>& events);

}  // namespace bl::test
