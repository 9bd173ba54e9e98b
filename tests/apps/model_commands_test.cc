#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "base/json.h"
#include "format/safetensors_file.h"
#include "program.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

class ModelCommands : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = make_tiny_model("model-commands").string();
    work_ = scratch_dir("model-commands-work");
  }
  static std::string ids_file(const std::string& json) {
    const fs::path path = work_ / "ids.json";
    write_file_atomically(path, json);
    return path.string();
  }
  static std::string out_file() { return (work_ / "out.safetensors").string(); }
  static std::string model_;
  static fs::path work_;
};
std::string ModelCommands::model_;
fs::path ModelCommands::work_;

// What logits says about the last position of a prompt, through the command.
std::vector<float> rows_of(const fs::path& path, const char* name, std::int64_t& rows) {
  const SafetensorsFile file(path);
  const HostArray array = file.read(name);
  rows = array.view.shape[0];
  const float* data = array.view.as<const float>();
  return {data, data + array.view.shape.elements()};
}

TEST_F(ModelCommands, TokensAreAllowedAndBannedByTheirTexts) {
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"run", "-m", model_,     "--backend", "ref", "-q",
                                   "-p",  "ab", "--greedy", "-n",        "12"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  const ProgramResult two = run({"--allow-token", "x", "--allow-token", "y"});
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_EQ(two.out.find_first_not_of("xy"), 12u) << two.out;
  const ProgramResult one = run({"--allow-token", "x", "--allow-token", "y", "--ban-token", "x"});
  EXPECT_EQ(one.out, "yyyyyyyyyyyy\n") << one.err;
  const ProgramResult none = run({"--ban-token", "no such"});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("banned_tokens has \"no such\""), std::string::npos) << none.err;
  EXPECT_EQ(run({"--allow-token", ""}).status, 2);
  // A preset's list, in place of which the user's comes.
  const std::string preset = (work_ / "letters.json").string();
  write_file_atomically(preset, R"({"allowed_tokens": [121, "z"]})");
  EXPECT_EQ(run({"--preset", preset}).out.find_first_not_of("yz"), 12u);
  EXPECT_EQ(run({"--preset", preset, "--allow-token", "x"}).out, "xxxxxxxxxxxx\n");
}

TEST_F(ModelCommands, RunPrintsTheTextAndNothingElse) {
  const std::vector<std::string> command{"run", "-m", model_,     "--backend", "ref",
                                         "-p",  "ab", "--greedy", "-n",        "12"};
  const ProgramResult result = run_program(command);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(result.out.ends_with("\n"));
  EXPECT_NE(result.err.find("12 tokens"), std::string::npos) << result.err;
  const ProgramResult again = run_program(command);
  EXPECT_EQ(again.out, result.out);

  std::vector<std::string> quiet = command;
  quiet.push_back("--quiet");
  const ProgramResult silent = run_program(quiet);
  EXPECT_EQ(silent.out, result.out);
  EXPECT_EQ(silent.err, "");

  // The same prompt from a file and from standard input.
  write_file_atomically(work_ / "prompt", "ab");
  const ProgramResult from_file =
      run_program({"run", "-m", model_, "--backend", "ref", "-f", (work_ / "prompt").string(),
                   "--greedy", "-n", "12"});
  EXPECT_EQ(from_file.out, result.out);
  const ProgramResult from_stdin =
      run_program({"run", "-m", model_, "--backend", "ref", "--greedy", "-n", "12"}, "ab");
  EXPECT_EQ(from_stdin.out, result.out);
}

TEST_F(ModelCommands, SeedsDecideSampledText) {
  const auto sample = [&](const char* seed) {
    return run_program({"run", "-m", model_, "--backend", "ref", "-p", "ab", "-n", "20",
                        "--temperature", "1.5", "--seed", seed})
        .out;
  };
  EXPECT_EQ(sample("1"), sample("1"));
  EXPECT_NE(sample("1"), sample("2"));
}

TEST_F(ModelCommands, PromptsThatDoNotFitAreErrors) {
  const ProgramResult result = run_program(
      {"run", "-m", model_, "--backend", "ref", "--ctx", "8", "-p", "a longer prompt", "-q"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("16 tokens and the context holds 8"), std::string::npos) << result.err;
}

TEST_F(ModelCommands, ChatAnswersOverAPipe) {
  const fs::path saved = work_ / "chat.json";
  const ProgramResult result =
      run_program({"chat", "-m", model_, "--backend", "ref", "--greedy", "-n", "4"},
                  "hello\n/regen\n/save " + saved.string() +
                      "\n/undo\n/set temprature 1\n/set top_k 5\n"
                      "two \\\nlines\n/load " +
                      saved.string() + "\n/system Be brief.\n/stats\n/quit\nnever\n");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("did you mean temperature"), std::string::npos) << result.err;
  const Json document = read_json_file(saved);
  ASSERT_EQ(document["messages"].size(), 2u);
  EXPECT_EQ(document["messages"][0]["content"], "hello");
  EXPECT_EQ(document["messages"][1]["role"], "assistant");
}

TEST_F(ModelCommands, LogitsOfABatchEqualThoseOfEach) {
  const ProgramResult batch =
      run_program({"logits", "-m", model_, "--backend", "ref", "--ids",
                   ids_file("[[256, 1, 2, 3], [7], [9, 8, 7, 6, 5, 4, 3]]"), "-o", out_file()});
  ASSERT_EQ(batch.status, 0) << batch.err;
  EXPECT_EQ(batch.out, "");
  std::int64_t rows = 0;
  const std::vector<float> third = rows_of(out_file(), "logits_2", rows);
  EXPECT_EQ(rows, 7);
  EXPECT_EQ(third.size(), 7u * 320);
  const ProgramResult single = run_program({"logits", "-m", model_, "--backend", "ref", "--ids",
                                            ids_file("[9, 8, 7, 6, 5, 4, 3]"), "-o", out_file()});
  ASSERT_EQ(single.status, 0) << single.err;
  const std::vector<float> alone = rows_of(out_file(), "logits", rows);
  ASSERT_EQ(alone.size(), third.size());
  for (std::size_t i = 0; i < alone.size(); ++i) ASSERT_NEAR(alone[i], third[i], 1e-4f) << i;
  // Without -o the same bytes go to standard output.
  const ProgramResult piped = run_program(
      {"logits", "-m", model_, "--backend", "ref", "--ids", ids_file("[9, 8, 7, 6, 5, 4, 3]")});
  EXPECT_EQ(piped.out, read_file(out_file()));
}

TEST_F(ModelCommands, WrongIdsAreNamed) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"[1, 2, 320]", "320"},    {"[1, -1]", "-1"}, {"[]", "at least one"},
      {"[[1], []]", "prompt 1"}, {"{}", "array"},   {"[1, [2]]", "[2]"},
      {"[1.5]", "1.5"},          {"[\"a\"]", "a"},  {"[1", "ids.json"},
      {"[[1], 2]", "array"}};
  for (const auto& [json, part] : cases) {
    fs::remove(out_file());
    const ProgramResult result = run_program(
        {"logits", "-m", model_, "--backend", "ref", "--ids", ids_file(json), "-o", out_file()});
    EXPECT_EQ(result.status, 1) << json;
    EXPECT_NE(result.err.find(part), std::string::npos) << json << ": " << result.err;
    EXPECT_FALSE(fs::exists(out_file())) << json;
  }
}

TEST_F(ModelCommands, DequantGivesTheMatrixInInputOrder) {
  const ProgramResult result = run_program(
      {"dequant", "-m", model_, "--tensor", "model.layers.0.self_attn.k_proj", "-o", out_file()});
  ASSERT_EQ(result.status, 0) << result.err;
  const SafetensorsFile out(out_file());
  const HostArray weight = out.read("weight");
  EXPECT_EQ(weight.view.shape, (Shape{32, 16}));
  const SafetensorsFile in(fs::path(model_) / "model.safetensors");
  const HostArray stored = in.read("model.layers.0.self_attn.k_proj.weight");
  for (std::int64_t i = 0; i < 32; ++i) {
    for (std::int64_t o = 0; o < 16; ++o) {
      ASSERT_EQ(weight.view.as<const std::uint16_t>()[i * 16 + o],
                stored.view.as<const std::uint16_t>()[o * 32 + i]);
    }
  }
  const ProgramResult wrong = run_program(
      {"dequant", "-m", model_, "--tensor", "model.layers.0.self_attn.k_prj", "-o", out_file()});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.err.find("did you mean model.layers.0.self_attn.k_proj"), std::string::npos)
      << wrong.err;
  const std::string own = (fs::path(model_) / "model.safetensors").string();
  const std::string before = read_file(own);
  const ProgramResult over = run_program(
      {"dequant", "-m", model_, "--tensor", "model.layers.0.self_attn.k_proj", "-o", own});
  EXPECT_EQ(over.status, 2) << over.err;
  EXPECT_EQ(read_file(own), before);
}

TEST_F(ModelCommands, PerplexityIsWhatLogitsSay) {
  write_file_atomically(work_ / "text", "The quick brown fox jumps over the lazy dog, twice.");
  const ProgramResult result = run_program({"eval", "ppl", "-m", model_, "--backend", "ref",
                                            "--text", (work_ / "text").string(), "--ctx", "16"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = parse_json(result.out, "stdout");
  EXPECT_EQ(document["tokens"], 3 * 15);

  // The same from the logits command: bytes are ids here.
  const std::string text = read_file(work_ / "text");
  Json batch = Json::array();
  for (std::size_t row = 0; row < 3; ++row) {
    Json ids = Json::array();
    for (std::size_t i = 0; i < 16; ++i) ids.push_back(text[row * 16 + i]);
    batch.push_back(ids);
  }
  ASSERT_EQ(run_program({"logits", "-m", model_, "--backend", "ref", "--ids",
                         ids_file(batch.dump()), "-o", out_file()})
                .status,
            0);
  double nats = 0;
  for (std::size_t row = 0; row < 3; ++row) {
    std::int64_t rows = 0;
    const std::vector<float> logits =
        rows_of(out_file(), ("logits_" + std::to_string(row)).c_str(), rows);
    for (std::size_t i = 0; i + 1 < 16; ++i) {
      double sum = 0;
      for (std::size_t id = 0; id < 320; ++id) {
        sum += std::exp(static_cast<double>(logits[i * 320 + id]));
      }
      const auto next = static_cast<std::size_t>(text[row * 16 + i + 1]);
      nats += std::log(sum) - static_cast<double>(logits[i * 320 + next]);
    }
  }
  EXPECT_NEAR(document["ppl"].get<double>(), std::exp(nats / 45), 1e-3 * std::exp(nats / 45));
}

TEST_F(ModelCommands, DistanceToItselfIsNothing) {
  write_file_atomically(work_ / "text", std::string(100, 'q') + "uick");
  const ProgramResult result =
      run_program({"eval", "kld", "-m", model_, "--base", model_, "--backend", "ref", "--text",
                   (work_ / "text").string(), "--ctx", "32", "--rows", "2", "-q"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = parse_json(result.out, "stdout");
  EXPECT_NEAR(document["kld"].get<double>(), 0, 1e-6);
  EXPECT_EQ(document["top1"], 1.0);
  EXPECT_EQ(document["ppl"], document["base_ppl"]);
  EXPECT_EQ(document["tokens"], 64);
  EXPECT_EQ(result.err, "");
}

// Each model's line has its size and what eval kld says of it; the plot has a point for each.
TEST_F(ModelCommands, ComparesSeveralModels) {
  write_file_atomically(work_ / "text", std::string(100, 'q') + "uick");
  const fs::path other = work_ / "other<model>";
  fs::create_directories(other);
  for (const auto& entry : fs::directory_iterator(model_)) fs::copy(entry.path(), other);
  const std::vector<std::string> common{"--base",       model_,  "--backend", "ref",    "--text",
                                        work_ / "text", "--ctx", "32",        "--rows", "2"};
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), common.begin(), common.end());
    return run_program(words);
  };
  const ProgramResult table = run({"eval", "compare", model_, other});
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 3) << table.out;
  EXPECT_NE(table.out.find("other<model>"), std::string::npos) << table.out;
  const fs::path plot = work_ / "plot.svg";
  const ProgramResult json = run({"eval", "compare", other, model_, "--plot", plot, "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  const Json models = parse_json(json.out, "stdout").at("models");
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0]["model"], other.string());
  EXPECT_EQ(models[0]["tokens"], 64);
  EXPECT_GT(models[0]["bytes"], 0);
  EXPECT_EQ(models[0]["bytes"], models[1]["bytes"]);
  EXPECT_NEAR(models[1]["kld"].get<double>(), 0, 1e-6);
  EXPECT_NE(read_file(plot).find("</svg>"), std::string::npos);
  EXPECT_EQ(run({"eval", "compare"}).status, 2);
  EXPECT_NE(run({"eval", "compare", work_ / "none"}).err.find("there is no"), std::string::npos);
}

TEST_F(ModelCommands, EvalRowsThatAreNotThereAreAnError) {
  write_file_atomically(work_ / "text", "short");
  const ProgramResult none = run_program(
      {"eval", "ppl", "-m", model_, "--backend", "ref", "--text", (work_ / "text").string()});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("not one whole row"), std::string::npos) << none.err;
  const ProgramResult few = run_program({"eval", "ppl", "-m", model_, "--backend", "ref", "--text",
                                         (work_ / "text").string(), "--ctx", "2", "--rows", "9"});
  EXPECT_EQ(few.status, 1);
  EXPECT_NE(few.err.find("--rows asks for 9"), std::string::npos) << few.err;
}

TEST_F(ModelCommands, BenchReportsEachTest) {
  const ProgramResult result = run_program({"bench", "-m", model_, "--backend", "ref", "-p", "20",
                                            "-n", "3", "-b", "2", "-d", "5", "-r", "2", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = parse_json(result.out, "stdout");
  ASSERT_EQ(document.size(), 2u);
  EXPECT_EQ(document[0]["test"], "pp20");
  EXPECT_EQ(document[1]["test"], "tg3");
  for (const Json& test : document) {
    EXPECT_EQ(test["batch"], 2);
    EXPECT_EQ(test["depth"], 5);
    EXPECT_GT(test["tps"].get<double>(), 0);
    EXPECT_GE(test["tps_stddev"].get<double>(), 0);
    EXPECT_EQ(test["tps_runs"].size(), 2u);
    EXPECT_GT(test["peak_host_bytes"].get<std::int64_t>(), 0);
    EXPECT_GT(test["load_seconds"].get<double>(), 0);
    EXPECT_GT(test["peak_device_bytes"].get<std::int64_t>(), 0);
  }
  const ProgramResult table =
      run_program({"bench", "-m", model_, "--backend", "ref", "-p", "0", "-n", "2", "-r", "1"});
  EXPECT_EQ(table.status, 0);
  EXPECT_NE(table.out.find("| tg2 "), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find("| pp"), std::string::npos);
}

TEST_F(ModelCommands, BenchProfilesOps) {
  const ProgramResult result = run_program({"bench", "-m", model_, "--backend", "cpu", "-p", "20",
                                            "-n", "3", "-r", "1", "--profile", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json tests = parse_json(result.out, "stdout");
  ASSERT_EQ(tests.size(), 2u);
  for (const Json& test : tests) {
    const Json& profile = test.at("profile");
    EXPECT_EQ(profile.at("test"), test.at("test"));
    double seconds = 0;
    std::map<std::string, int> calls;
    for (const Json& op : profile.at("ops")) {
      EXPECT_GE(op.at("seconds"), 0.0);
      seconds += op.at("seconds").get<double>();
      calls[op.at("op")] += op.at("calls").get<int>();
    }
    EXPECT_GT(seconds, 0.0);
    EXPECT_LE(seconds, profile.at("seconds").get<double>());
    EXPECT_EQ(calls["embed"], test.at("test") == "pp20" ? 1 : 3) << "one for each step";
    EXPECT_GT(calls["matmul"], calls["embed"]);
  }
  const ProgramResult table = run_program(
      {"bench", "-m", model_, "--backend", "cpu", "-p", "0", "-n", "2", "-r", "1", "--profile"});
  EXPECT_NE(table.out.find("tg2, op by op"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("outside ops"), std::string::npos) << table.out;
  EXPECT_EQ(run_program({"bench", "-m", model_, "--profile", "--check"}).status, 2);
}

TEST_F(ModelCommands, BenchChecksStepsAgainstAPrompt) {
  for (const char* backend : {"ref", "cpu"}) {
    const ProgramResult result =
        run_program({"bench", "-m", model_, "--backend", backend, "--check", "--json"});
    ASSERT_EQ(result.status, 0) << backend << result.err;
    const Json checks = parse_json(result.out, "stdout");
    ASSERT_EQ(checks.size(), 6u);
    EXPECT_EQ(checks[0]["tokens"], 1);
    for (const Json& check : checks) {
      EXPECT_GE(check["apart"].get<double>(), 0);
      EXPECT_LE(check["apart"].get<double>(), 0.02) << backend << ", " << check["tokens"];
    }
  }
  const ProgramResult against = run_program(
      {"bench", "-m", model_, "--backend", "cpu", "--check", "--against", "ref", "--json"});
  ASSERT_EQ(against.status, 0) << against.err;
  const Json checks = parse_json(against.out, "stdout");
  ASSERT_EQ(checks.size(), 7u);
  EXPECT_EQ(checks[6]["against"], "ref");
  EXPECT_GT(checks[6]["apart"].get<double>(), 0);
  const ProgramResult table = run_program({"bench", "-m", model_, "--backend", "ref", "--check"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("tokens of a step"), std::string::npos) << table.out;
  const ProgramResult batch = run_program({"bench", "-m", model_, "--check", "-b", "2"});
  EXPECT_EQ(batch.status, 2) << batch.err;
}

TEST_F(ModelCommands, BenchMakesRandomModels) {
  const auto write_shape = [&](const char* name, int hidden, int heads) {
    const fs::path path = work_ / name;
    write_file_atomically(path, fmt::format(
                                    R"({{"architectures": ["LlamaForCausalLM"],
 "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5, "hidden_size": {},
 "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": {},
 "num_key_value_heads": {}, "vocab_size": 1000, "max_position_embeddings": 512,
 "rope_theta": 10000.0}})",
                                    hidden, heads, heads / 2));
    return path;
  };
  const fs::path config = write_shape("shape.json", 256, 4);
  const fs::path odd_config = write_shape("odd.json", 192, 6);
  for (const std::vector<std::string>& format :
       std::vector<std::vector<std::string>>{{"--bpw", "2.5"},
                                             {"--bpw", "3"},
                                             {"--bpw", "4"},
                                             {"--bpw", "5"},
                                             {"--bpw", "6"},
                                             {"--bpw", "4+"},
                                             {"--bpw", "3.3", "--layers", "1"},
                                             {"--format", "gptq"},
                                             {"--format", "gptq", "--group-size", "32"},
                                             {"--format", "fp16"}}) {
    std::vector<std::string> command{"bench", "--random", config.string(), "-p", "8", "-n", "2",
                                     "-r",    "1",        "--json"};
    command.insert(command.end(), format.begin(), format.end());
    const ProgramResult result = run_program(command);
    EXPECT_EQ(result.status, 0) << format[1] << result.err;
    const Json tests = parse_json(result.out, "stdout");
    EXPECT_EQ(tests.size(), 2u);
    const Json& made = tests.at(0).at("random_model");
    EXPECT_EQ(made.at("architecture"), "LlamaForCausalLM");
    EXPECT_GT(made.at("bytes"), 1000);
    EXPECT_NE(result.err.find("random weights: LlamaForCausalLM"), std::string::npos) << result.err;
  }
  // The last group of a row is short.
  const ProgramResult odd = run_program({"bench", "--random", odd_config.string(), "--format",
                                         "gptq", "-p", "8", "-n", "2", "-r", "1"});
  EXPECT_EQ(odd.status, 0) << odd.err;
  const ProgramResult unknown = run_program({"bench", "--random", "huge-900b"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("config.json"), std::string::npos);
  const ProgramResult mix = run_program({"bench", "--random", config.string(), "--bpw", "9"});
  EXPECT_EQ(mix.status, 1);
  EXPECT_NE(mix.err.find("from 2 to 8"), std::string::npos) << mix.err;
  // Some matrices are larger with "+", so the file is.
  const auto weight_bytes = [&](const char* bits) {
    const ProgramResult result = run_program({"bench", "--random", config.string(), "--bpw", bits,
                                              "-p", "0", "-n", "1", "-r", "1", "--json"});
    return parse_json(result.out, "stdout").at(0).at("weight_bytes").get<std::int64_t>();
  };
  EXPECT_GT(weight_bytes("4+"), weight_bytes("4"));
  const ProgramResult group =
      run_program({"bench", "--random", config.string(), "--format", "gptq", "--group-size", "48"});
  EXPECT_EQ(group.status, 1);
  EXPECT_NE(group.err.find("32, 64, 128"), std::string::npos) << group.err;
}

TEST_F(ModelCommands, InspectPlansMemory) {
  const ProgramResult result = run_program(
      {"inspect", model_, "--backend", "ref", "--ctx", "512", "--cache", "fp16", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json document = parse_json(result.out, "stdout");
  EXPECT_EQ(document["layers"], 2);
  EXPECT_EQ(document["vocab"], 320);
  EXPECT_DOUBLE_EQ(document["bits_per_weight"].get<double>(), 16.0);
  EXPECT_DOUBLE_EQ(document["bits_per_weight_of_blocks"].get<double>(), 16.0);
  const Json& plan = document["plan"];
  // 2 layers · 2 heads · 8 elements · keys and values · 2 bytes
  EXPECT_EQ(plan["cache"], 512 * 2 * 2 * 8 * 2 * 2);
  EXPECT_EQ(plan["total"].get<std::uint64_t>(), plan["weights"].get<std::uint64_t>() +
                                                    plan["cache"].get<std::uint64_t>() +
                                                    plan["work"].get<std::uint64_t>());
  EXPECT_EQ(plan["fits"], true);
  EXPECT_EQ(plan["max_ctx"], 1024);

  const ProgramResult tight =
      run_program({"inspect", model_, "--backend", "ref", "--vram", "20kB", "--json"});
  EXPECT_EQ(parse_json(tight.out, "stdout")["plan"]["fits"], false);
  const ProgramResult table = run_program({"inspect", model_, "--backend", "ref"});
  EXPECT_EQ(table.status, 0);
  EXPECT_NE(table.out.find("model.layers.1"), std::string::npos);
}

// Searching the list of layers for each tensor took minutes.
TEST_F(ModelCommands, InspectOfVeryManyLayersIsSoonDone) {
  const fs::path folder = make_tiny_model("layers");
  constexpr int kCount = 100'000;
  std::string header = "{";
  for (int i = 0; i < kCount; ++i) {
    header +=
        fmt::format(R"({}"x.{}.y.weight":{{"dtype":"F16","shape":[1,1],"data_offsets":[{},{}]}})",
                    i > 0 ? "," : "", i, 2 * i, 2 * i + 2);
  }
  header += "}";
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  // Without a model.safetensors every file of the folder counts.
  fs::rename(folder / "model.safetensors", folder / "some.safetensors");
  write_file_atomically(folder / "more.safetensors", file + header + std::string(2 * kCount, '\0'));
  // Processor time of programs that have ended: others may use the machine.
  const auto seconds_of_programs = [] {
    rusage usage{};
    ::getrusage(RUSAGE_CHILDREN, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec);
  };
  const double before = seconds_of_programs();
  const ProgramResult result = run_program({"inspect", folder.string(), "--backend", "ref"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("x.99999 "), std::string::npos);
  EXPECT_LT(seconds_of_programs() - before, 20);
}

TEST_F(ModelCommands, MemoryThatIsNotThereIsSaidBefore) {
  const ProgramResult result =
      run_program({"run", "-m", model_, "--backend", "ref", "-p", "x", "--ctx", "2000000000"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("needs"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("--ctx"), std::string::npos) << result.err;
}

TEST_F(ModelCommands, KvHostIsChecked) {
  const auto run = [&](const char* size) {
    return run_program(
        {"run", "-m", model_, "--backend", "ref", "-p", "x", "-n", "1", "--kv-host", size});
  };
  EXPECT_EQ(run("64MiB").status, 0);
  const ProgramResult small = run("5KiB");
  EXPECT_EQ(small.status, 1);
  EXPECT_NE(small.err.find("fewer than two pages"), std::string::npos) << small.err;
  const ProgramResult large = run("9000000GiB");
  EXPECT_EQ(large.status, 1);
  EXPECT_NE(large.err.find("--kv-host asks for"), std::string::npos) << large.err;
}

TEST_F(ModelCommands, InspectPlansForACardThatIsNotHere) {
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"inspect", "--backend", "cuda", "--vram", "24GB", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? parse_json(result.out, "stdout").at("plan") : Json::object();
  };
  const Json here = plan({model_, "--ctx", "64"});
  EXPECT_TRUE(here.at("fits").get<bool>());
  // No weight of a random model is made for its plan.
  const std::vector<std::string> large{"--random", "llama3-70b", "--bpw", "2.5",
                                       "--cache",  "q4",         "--ctx", "2048"};
  const Json on_card = plan(large);
  EXPECT_FALSE(on_card.at("fits").get<bool>());
  std::vector<std::string> with_host = large;
  with_host.push_back("--embed-host");
  const Json on_host = plan(with_host);
  EXPECT_TRUE(on_host.at("fits").get<bool>());
  EXPECT_EQ(on_host.at("host").get<std::int64_t>(), std::int64_t{128256} * 8192 * 2);
  EXPECT_LE(on_host.at("quantized_packed").get<double>(),
            1.02 * on_host.at("quantized_stored").get<double>());
  const ProgramResult both = run_program({"inspect", model_, "--random", "llama3-70b"});
  EXPECT_EQ(both.status, 2);
  const ProgramResult replaced =
      run_program({"inspect", "--random", "llama3-8b", "--override", "*.mlp.*=" + model_});
  EXPECT_EQ(replaced.status, 2);
  EXPECT_NE(replaced.err.find("not of --random"), std::string::npos) << replaced.err;
}

TEST_F(ModelCommands, DamagedFilesAreOneLine) {
  const fs::path broken = make_tiny_model("broken");
  const std::string weights = read_file(broken / "model.safetensors");
  const auto expect_refused = [&](const char* what, const char* file) {
    const ProgramResult result =
        run_program({"run", "-m", broken.string(), "--backend", "ref", "-p", "x", "-n", "1", "-q"});
    EXPECT_EQ(result.status, 1) << what;
    EXPECT_EQ(result.out, "") << what;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_NE(result.err.find(file), std::string::npos) << result.err;
  };
  write_file_atomically(broken / "model.safetensors", weights.substr(0, weights.size() / 2));
  expect_refused("cut weights", "model.safetensors");
  write_file_atomically(broken / "model.safetensors", "");
  expect_refused("empty weights", "model.safetensors");
  write_file_atomically(broken / "model.safetensors", weights);
  write_file_atomically(broken / "config.json", "{\"architectures\": [\"NobodyForCausalLM\"]}");
  expect_refused("unknown architecture", "config.json");
  write_file_atomically(broken / "config.json", "[]");
  expect_refused("config of a wrong kind", "config.json");
}

}  // namespace
}  // namespace bl::test
