// Options of gradient compression: what they set, and what is refused with which remedy.
#include <gtest/gtest.h>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "io/options/values.h"

using namespace triax;
using namespace triax::io;

namespace {

RunOptions parsed(const std::string& words) {
  return parse_options(
             split_blanks("--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 101 "
                          "--mock-data --micro-batch-size 1 --global-batch-size 8 --train-iters 20 --lr 1e-3 " +
                          words))
      .options;
}

std::string fault_of(const std::string& words) {
  try {
    RunOptions options = parsed(words);
    resolve(options, 4);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(CompressionOptions, set_every_field) {
  const comm::CompressionOptions plain = parsed("").parallel.compression;
  EXPECT_EQ(plain.method, comm::CompressionMethod::None);
  EXPECT_TRUE(plain.exempt_embedding && plain.exempt_head && !plain.error_feedback);
  const comm::CompressionOptions c =
      parsed(
          "--grad-compression topk --grad-compression-density 0.25 --grad-compression-rank 8 --grad-compression-levels "
          "7 --grad-compression-block 128 --no-grad-compression-error-feedback --grad-compression-exempt head "
          "--grad-compression-min-elements 5 --grad-compression-warmup-steps 9")
          .parallel.compression;
  EXPECT_EQ(c.method, comm::CompressionMethod::TopK);
  EXPECT_EQ(c.density, 0.25);
  EXPECT_EQ(c.rank, 8);
  EXPECT_EQ(c.levels, 7);
  EXPECT_EQ(c.block(), 128);
  EXPECT_FALSE(c.feedback());
  EXPECT_FALSE(c.exempt_embedding);
  EXPECT_TRUE(c.exempt_head);
  EXPECT_EQ(c.min_elements, 5);
  EXPECT_EQ(c.warmup_steps, 9);
}

TEST(CompressionOptions, defaults_depend_on_the_method) {
  EXPECT_TRUE(parsed("--grad-compression int8").parallel.compression.feedback());
  EXPECT_FALSE(parsed("--grad-compression qsgd").parallel.compression.feedback());
  EXPECT_EQ(parsed("--grad-compression int8").parallel.compression.block(), 256);
  EXPECT_EQ(parsed("--grad-compression onebit-adam").parallel.compression.block(), 2048);
  EXPECT_EQ(parsed("--grad-compression int8").parallel.compression.warmup(), 0);
  EXPECT_EQ(parsed("--grad-compression onebit-adam").parallel.compression.warmup(), 100);
}

TEST(CompressionOptions, refused_with_a_remedy) {
  const auto refuses = [](const std::string& words, const std::string& text) {
    EXPECT_NE(fault_of(words).find(text), std::string::npos) << words << ": " << fault_of(words);
  };
  for (const char* method : {"topk", "onebit-adam", "powersgd", "qsgd", "int8", "bf16"}) {
    EXPECT_EQ(fault_of(std::string("--grad-compression ") + method), "");
    refuses(std::string("--fp16 --grad-compression ") + method, "use --bf16, or --grad-compression none");
  }
  refuses("--grad-compression int8 --grad-sync parameter-server", "use --grad-sync all-reduce");
  refuses("--grad-compression int8 --zero-stage 2", "use --zero-stage 0 or 1");
  refuses("--grad-compression int8 --zero-stage 1 --zero-shard-group 2", "use --zero-shard-group 4");
  refuses("--grad-compression zip", "--grad-compression zip: must be one of none|topk|onebit-adam");
  refuses("--grad-compression onebit-adam --optimizer sgd", "is a form of Adam; use --optimizer adam");
  refuses("--grad-compression onebit-adam --grad-compression-warmup-steps 0", "learns its second moment");
  refuses("--grad-compression onebit-adam --no-grad-compression-error-feedback", "does not converge");
  refuses("--grad-compression-density 0", "--grad-compression-density 0: must be in (0, 1]");
  refuses("--grad-compression-density 1.5", "must be in (0, 1]");
  refuses("--grad-compression-rank 0", "must be at least 1");
  refuses("--grad-compression-levels 128", "must be at most 127");
  refuses("--grad-compression-block 9000", "must be at most 8192");
  refuses("--grad-compression-exempt layers", "must be embedding,head, embedding, head or none");
}

TEST(CompressionOptions, resolved_cfg_repeats_them) {
  const std::string words =
      "--grad-compression powersgd --grad-compression-rank 3 --grad-compression-error-feedback "
      "--grad-compression-exempt none";
  const RunOptions options = parsed(words);
  const std::string cfg = resolved_cfg(options);
  for (const char* line : {"grad-compression = powersgd\n", "grad-compression-rank = 3\n",
                           "grad-compression-error-feedback = true\n", "grad-compression-exempt = none\n"}) {
    EXPECT_NE(cfg.find(line), std::string::npos) << line << cfg;
  }
  EXPECT_EQ(resolved_cfg(parsed("")).find("error-feedback"), std::string::npos);
}

}  // namespace
