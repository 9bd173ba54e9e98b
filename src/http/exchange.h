#pragma once
#include <cstddef>
#include <functional>
#include <string>

#include "http/message.h"

namespace bl::http {

// One request and the answer to it. Whoever holds it may answer, from any thread; every function
// may be called from any thread. Where the last holder lets go of it before it was answered, the
// client gets status 500.
class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;

  // Answers with a whole body. An exchange is answered once; later answers are ignored, and so is
  // everything after the client has left.
  virtual void respond(Response response) = 0;

  // Begins an answer whose body follows in pieces of unknown number; `head.body` is the first of
  // them. Pieces are sent as chunks, or to clients of HTTP/1.0 until the connection closes.
  virtual void begin(Response head) = 0;
  virtual void write(std::string_view piece) = 0;
  virtual void end() = 0;
  // Closes the connection in the middle of the answer, so that the client notices.
  virtual void abort() = 0;

  // Bytes that were written and not yet accepted by the client's end of the connection. A producer
  // that stops at a limit of its own goes on when the watcher is called.
  virtual std::size_t unsent() const = 0;
  // The client has closed the connection, or it failed.
  virtual bool gone() const = 0;

  // Has `watcher` called when unsent() has become small again, and once when the client has gone.
  // It runs on a thread of the HTTP server, so it must not block. It is dropped when the answer is
  // over, or by a null one. A watcher may be called once more after it was replaced.
  virtual void watch(std::function<void()> watcher) = 0;
};

}  // namespace bl::http
