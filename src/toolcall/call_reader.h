#pragma once
// Readers of calls, one for each CallForm.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "toolcall/answer_format.h"
#include "toolcall/tool_set.h"

namespace bl {

// Where a CallReader writes what it has read. Nothing that was written is ever taken back.
class CallSink {
 public:
  virtual void begin_call(std::string_view name, std::string_view id) = 0;
  virtual void add_arguments(std::string_view json) = 0;
  // The call is complete where its arguments are whole JSON.
  virtual void end_call() = 0;
  // Everything up to and with the current byte is dealt with and is never read again.
  virtual void settle() = 0;
  // Only the first `bytes` of what is not settled are dealt with; reading goes on behind them.
  virtual void settle_first(std::size_t bytes) = 0;

 protected:
  ~CallSink() = default;
};

// Reads the calls behind the beginning that a Pattern has found.
class CallReader {
 public:
  enum class Status : std::uint8_t {
    kMore,
    kEnd,        // the calls ended with this byte
    kEndBefore,  // the calls ended before what is not settled, which is to be read again
    kFailed,     // what is not settled is no call
    kBroken,  // the arguments of the call that has begun are no JSON; the rest of the call is raw
  };
  virtual ~CallReader() = default;
  virtual Status push(char byte, CallSink& sink) = 0;
  // The text has ended. Ends the call that has begun; returns false if what is not settled is no
  // call, so that it is content.
  virtual bool finish(CallSink& sink) = 0;
};

// What a reader is made for. All of it outlives the reader.
struct CallReaderArgs {
  const AnswerFormat& format;
  const ToolSet& tools;
  const PatternMatch& head;  // the beginning that was found
};

// The name and id that a pattern took, in the terms of the request.
struct CallName {
  std::string name;
  std::string id;
};
CallName call_name(const AnswerFormat& format, std::string_view name, std::string_view id);

// A reader for the form of the pattern that was found.
std::unique_ptr<CallReader> make_call_reader(const CallReaderArgs& args);

std::unique_ptr<CallReader> make_object_reader(const CallReaderArgs& args);
std::unique_ptr<CallReader> make_arguments_reader(const CallReaderArgs& args);
std::unique_ptr<CallReader> make_parameters_reader(const CallReaderArgs& args);
std::unique_ptr<CallReader> make_elements_reader(const CallReaderArgs& args);
std::unique_ptr<CallReader> make_python_reader(const CallReaderArgs& args);
std::unique_ptr<CallReader> make_braces_reader(const CallReaderArgs& args);

}  // namespace bl
