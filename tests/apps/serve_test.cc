// `bitloom serve` as a program: its options from file, environment and command line, its signals,
// and a port that is in use.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "../engine/tiny_model.h"
#include "../http/raw_client.h"
#include "base/file.h"
#include "base/json.h"
#include "program.h"
#include "support/data.h"

extern char** environ;  // NOLINT: POSIX declares it so

namespace bl::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// A variable of the environment, for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::string config_file(const std::string& text) {
  const fs::path file = scratch_dir("serve-config") / "bitloom.toml";
  write_file_atomically(file, text);
  return file.string();
}

// The line of an option in what --print-config prints.
std::string printed(std::vector<std::string> arguments, const std::string& key) {
  arguments.insert(arguments.begin(), "serve");
  arguments.emplace_back("--print-config");
  const ProgramResult result = run_program(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string text = "\n" + result.out;
  const std::size_t at = text.find("\n" + key + " = ");
  if (at == std::string::npos) return {};
  return text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

TEST(ServeConfig, HasOnePrecedence) {
  const std::string file = config_file(
      "port = 9000\nhost = [\"::1\", \"127.0.0.1\"]\nlog-prompts = true\nalias = \"a\"\n");
  EXPECT_EQ(printed({}, "port"), "port = 8080");
  EXPECT_EQ(printed({"--config", file}, "port"), "port = 9000");
  EXPECT_EQ(printed({"--config", file}, "host"), "host = [\"::1\", \"127.0.0.1\"]");
  EXPECT_EQ(printed({"--config", file}, "log_prompts"), "log_prompts = true");
  EXPECT_EQ(printed({"--config", file}, "alias"), "alias = [\"a\"]");
  const Variable port("BITLOOM_PORT", "9001");
  const Variable host("BITLOOM_HOST", "127.0.0.2,127.0.0.3");
  const Variable prompts("BITLOOM_LOG_PROMPTS", "false");
  EXPECT_EQ(printed({"--config", file}, "port"), "port = 9001");
  EXPECT_EQ(printed({"--config", file}, "host"), "host = [\"127.0.0.2\", \"127.0.0.3\"]");
  EXPECT_EQ(printed({"--config", file}, "log_prompts"), "log_prompts = false");
  EXPECT_EQ(printed({"--config", file, "--port", "9002"}, "port"), "port = 9002");
  EXPECT_EQ(printed({"--config", file, "--host", "localhost"}, "host"), "host = [\"localhost\"]")
      << "a list comes from one place as a whole";
}

TEST(ServeConfig, PrintsWhatItReads) {
  const std::string file = config_file(
      "model = \"models/a b\"\ntemperature = 0.5\nmax_body = \"1MiB\"\nngram = true\n"
      "api_key = [\"secret-one\"]\nadmin-key = \"secret-two\"\n");
  const ProgramResult first = run_program({"serve", "--config", file, "--print-config"});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.out.find("secret"), std::string::npos) << "keys are not shown";
  EXPECT_NE(first.out.find("api_key = [\"***\"]"), std::string::npos) << first.out;
  const ProgramResult second =
      run_program({"serve", "--config", config_file(first.out), "--print-config"});
  EXPECT_EQ(second.out, first.out) << second.err;
}

TEST(ServeConfig, SaysWhatIsWrong) {
  const auto error_of = [](const std::string& text) {
    const ProgramResult result = run_program({"serve", "--config", config_file(text)});
    EXPECT_NE(result.status, 0);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
  };
  EXPECT_NE(
      error_of("\nprot = 1\n").find("bitloom.toml:2: unknown option prot; did you mean port?"),
      std::string::npos);
  EXPECT_NE(error_of("port = \"x\"\n").find("bitloom.toml:1: port"), std::string::npos);
  EXPECT_NE(error_of("port = [1, 2]\n").find("this option has one value"), std::string::npos);
  EXPECT_NE(error_of("port = \n").find("bitloom.toml:1"), std::string::npos);
  EXPECT_NE(error_of("[network]\nport = 1\n").find("unknown option network"), std::string::npos);
  EXPECT_NE(error_of("config = \"other\"\n").find("unknown option config"), std::string::npos);
  EXPECT_NE(error_of(std::string(2 << 20, '#')).find("bitloom.toml"), std::string::npos);
  EXPECT_NE(error_of("a = " + std::string(100'000, '[')).find("bitloom.toml"), std::string::npos);
  EXPECT_EQ(run_program({"serve", "--config", "/none/here.toml"}).status, 1);
  const Variable wrong("BITLOOM_API_KEYS", "secret");
  const ProgramResult variable = run_program({"serve", "--print-config"});
  EXPECT_EQ(variable.status, 2);
  EXPECT_NE(variable.err.find("did you mean BITLOOM_API_KEY?"), std::string::npos) << variable.err;
}

const fs::path& tiny_model() {
  static const fs::path kModel = make_tiny_model("serve-model");
  return kModel;
}

// The program, running as a server.
class Running {
 public:
  explicit Running(std::vector<std::string> more = {}) {
    log_ = scratch_dir("serve-running") / "log";
    std::vector<std::string> words{BL_BINARY, "serve", "--threads", "1"};
    if (std::find(more.begin(), more.end(), "--random") == more.end()) {
      words.insert(words.end(), {"-m", tiny_model().string()});
    }
    if (std::find(more.begin(), more.end(), "--port") == more.end()) {
      words.insert(words.end(), {"--port", "0"});
    }
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 2, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT_EQ(posix_spawn(&process_, BL_BINARY, &files, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
  }
  ~Running() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  std::string log() const { return read_file(log_); }
  bool wait_for(const std::string& text) const {
    for (int i = 0; i < 3000; ++i) {
      if (log().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
  std::uint16_t port() const {
    const std::string text = log();
    constexpr std::string_view kMark = "listening on http://127.0.0.1:";
    const std::size_t at = text.find(kMark);
    return static_cast<std::uint16_t>(std::atoi(text.c_str() + at + kMark.size()));
  }
  void signal(int number) const { ::kill(process_, number); }
  // The exit status, or 128 + the signal; −1 where it does not end.
  int wait(std::chrono::seconds most) {
    const auto end = std::chrono::steady_clock::now() + most;
    int raw = 0;
    while (::waitpid(process_, &raw, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) return -1;
      std::this_thread::sleep_for(10ms);
    }
    process_ = 0;
    return WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  }

 private:
  fs::path log_;
  pid_t process_ = 0;
};

TEST(ServeProgram, EndsAsASignalAsks) {
  for (const int number : {SIGTERM, SIGHUP, SIGINT}) {
    Running server;
    ASSERT_TRUE(server.wait_for("ready")) << server.log();
    server.signal(SIGUSR1);
    server.signal(SIGUSR2);
    server.signal(SIGPIPE);
    RawClient client(server.port());
    const std::string body = R"({"prompt":"a","max_tokens":1000,"ignore_eos":true,"stream":true})";
    client.send(fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body));
    EXPECT_NE(client.read_to("data: "), "") << "it lives after the signals that do nothing";
    server.signal(number);
    const std::string rest = client.read_all(15s);
    EXPECT_NE(rest.find("data: [DONE]\n\n"), std::string::npos);
    EXPECT_TRUE(client.ended());
    EXPECT_EQ(server.wait(15s), 0) << number;
  }
}

TEST(ServeProgram, ARandomModelTakesItsWordsFromATokenizer) {
  const std::string folder = tiny_model().string();
  Running server({"--random", folder + "/config.json", "--format", "fp32", "--tokenizer", folder});
  ASSERT_TRUE(server.wait_for("ready")) << server.log();
  RawClient client(server.port());
  const std::string body = R"({"prompt":"a","max_tokens":3,"ignore_eos":true})";
  client.send(fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body));
  EXPECT_NE(client.read_to("\"completion_tokens\":3"), "");
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--random", "llama3-8b"},
        {"--random", "llama3-8b", "--tokenizer", folder, "-m", folder},
        {"-m", folder, "--tokenizer", folder}}) {
    std::vector<std::string> words = wrong;
    words.insert(words.begin(), "serve");
    EXPECT_EQ(run_program(words).status, 2);
  }
}

// The status and the body that a running server answers with.
std::string answer_of(const Running& server, const std::string& path, const std::string& body) {
  RawClient client(server.port());
  client.send(fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                          path, body.size(), body));
  return client.read_answer().substr(9);
}

TEST(ServeProgram, OnlyEmbedsWhereItIsToldTo) {
  Running server({"--embeddings"});
  ASSERT_TRUE(server.wait_for("ready")) << server.log();
  const std::string vectors = answer_of(server, "/v1/embeddings", R"({"input":"a"})");
  EXPECT_TRUE(vectors.starts_with("200")) << vectors;
  for (const char* path : {"/v1/completions", "/completion", "/api/v1/generate"}) {
    const std::string refusal = answer_of(server, path, R"({"prompt":"a","stream":true})");
    EXPECT_TRUE(refusal.starts_with("501")) << path << ": " << refusal;
    EXPECT_NE(refusal.find("without --embeddings"), refusal.npos) << path << ": " << refusal;
  }
}

TEST(ServeProgram, RanksDocumentsByTheirEmbeddings) {
  Running server({"--reranking"});
  ASSERT_TRUE(server.wait_for("ready")) << server.log();
  const auto ask = [&](const std::string& members) {
    const std::string answer =
        answer_of(server, "/v1/rerank", R"({"query":"a tree",)" + members + "}");
    EXPECT_TRUE(answer.starts_with("200")) << answer;
    return Json::parse(answer.substr(answer.find("\r\n\r\n")));
  };
  const Json all = ask(R"("documents":["xyz","a tree",{"text":"q"}],"return_documents":true)");
  ASSERT_EQ(all.at("results").size(), 3u);
  const Json& best = all["results"][0];
  EXPECT_EQ(best.at("index"), 1) << "the query itself";
  EXPECT_NEAR(best.at("relevance_score"), 1, 1e-5);
  EXPECT_EQ(best.at("document").at("text"), "a tree");
  EXPECT_GE(all["results"][1].at("relevance_score"), all["results"][2].at("relevance_score"));
  EXPECT_EQ(all.at("usage").at("prompt_tokens"), 2 * 7 + 4 + 2) << "with <s> before each";
  EXPECT_EQ(ask(R"("documents":["xyz","a tree"],"top_n":1)").at("results").size(), 1u);
  const Json list = ask(R"("texts":["xyz","a tree"],"return_text":true)");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].at("text"), "a tree");
  EXPECT_NEAR(list[0].at("score"), 1, 1e-5);
  EXPECT_TRUE(answer_of(server, "/rerank", R"({"query":"q","documents":["a"],"top_n":0})")
                  .starts_with("400"));
}

TEST(ServeProgram, HandsVariablesToTheTemplate) {
  const fs::path file = scratch_dir("serve-template") / "t.jinja";
  write_file_atomically(
      file, "{{ messages[0].content }}{{ tone }}{% if enable_thinking %}!{% else %}?{% endif %}");
  Running server({"--template", file.string(), "--reasoning", "off", "--template-vars",
                  R"({"tone":" loudly","enable_thinking":true})"});
  ASSERT_TRUE(server.wait_for("ready")) << server.log();
  const auto prompt = [&](const std::string& more) {
    return answer_of(server, "/apply-template",
                     R"({"messages":[{"role":"user","content":"Hi"}])" + more + "}");
  };
  EXPECT_NE(prompt("").find("Hi loudly!"), std::string::npos) << prompt("");
  const std::string own = prompt(R"(,"chat_template_kwargs":{"tone":" softly"})");
  EXPECT_NE(own.find("Hi softly!"), std::string::npos) << own;
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--template-vars", "[1]"},
                                                {"--template-vars", "{"},
                                                {"--reasoning-format", "apart"}}) {
    std::vector<std::string> words = wrong;
    words.insert(words.begin(), {"serve", "-m", tiny_model().string()});
    EXPECT_EQ(run_program(words).status, 2) << wrong.back();
  }
}

TEST(ServeProgram, APortInUseIsOneLine) {
  Running first;
  ASSERT_TRUE(first.wait_for("ready"));
  Running second({"--port", std::to_string(first.port())});
  EXPECT_EQ(second.wait(30s), 1);
  const std::string log = second.log();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_NE(log.find("choose another one with --port"), std::string::npos) << log;
}

TEST(ServeProgram, AModelThatCannotBeLoadedEndsIt) {
  const ProgramResult result = run_program({"serve", "-m", "/none", "--port", "0"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(run_program({"serve"}).status, 2);
}

TEST(ServeProgram, ReadsKeysFromFilesAndListensOnASocket) {
  const fs::path folder = scratch_dir("serve-keys");
  write_file_atomically(folder / "keys", "# of the team\n\n first-key \r\nsecond-key\n");
  const std::string path = (folder / "s.sock").string();
  Running server(
      {"--api-key-file", (folder / "keys").string(), "--host", path, "--host", "127.0.0.1"});
  ASSERT_TRUE(server.wait_for("ready")) << server.log();
  const auto ask = [&](const std::string& key) {
    RawClient client(server.port());
    client.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key +
                "\r\n\r\n");
    return client.read_answer().substr(9, 3);
  };
  EXPECT_EQ(ask("first-key"), "200");
  EXPECT_EQ(ask("second-key"), "200");
  EXPECT_EQ(ask("# of the team"), "401");
  EXPECT_TRUE(fs::is_socket(path));
  EXPECT_TRUE(server.wait_for("\"key\":\"key-1\"")) << "the access log: " << server.log();
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(15s), 0);
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(run_program({"serve", "-m", "/none", "--api-key-file", "/none"}).status, 1);
}

}  // namespace
}  // namespace bl::test
