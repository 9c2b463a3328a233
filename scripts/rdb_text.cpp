// Prints the novels of R's janeaustenr package as plain text: rdb_text Rdata.rdb [first line of one novel].
// An .rdb file is a row of objects, each a big-endian u32 length and a zlib stream; inside, R's XDR serialisation
// (format 3) of a vector of strings, one per line of text. Chapters come out separated by two blank lines.
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<unsigned char>;

uint32_t word(const Bytes& bytes, size_t at) {
  if (at + 4 > bytes.size()) throw std::string("the file ends within an object");
  return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

// Inflates the object at `at` and moves `at` behind it.
Bytes next_object(const Bytes& file, size_t& at) {
  Bytes out(word(file, at));
  z_stream stream{};
  stream.next_in = const_cast<unsigned char*>(file.data() + at + 4);
  stream.avail_in = static_cast<uInt>(file.size() - at - 4);
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  inflateInit(&stream);
  const int code = inflate(&stream, Z_FINISH);
  at = file.size() - stream.avail_in;
  inflateEnd(&stream);
  if (code != Z_STREAM_END) throw std::string("damaged zlib data");
  return out;
}

// "X\n", version 3, two R versions, length and name of the native encoding; then flags, count, and per string flags,
// length, bytes.
std::vector<std::string> lines_of(const Bytes& object) {
  constexpr uint32_t kStrings = 16;
  if (object.size() < 18 || object[0] != 'X' || word(object, 2) != 3)
    throw std::string("no R serialisation of format 3");
  size_t at = 18 + word(object, 14);
  if ((word(object, at) & 0xff) != kStrings) return {};
  std::vector<std::string> lines(word(object, at + 4));
  at += 8;
  for (std::string& line : lines) {
    const uint32_t length = word(object, at + 4);
    at += 8;
    if (length == 0xffffffffu) continue;  // NA
    if (at + length > object.size()) throw std::string("the file ends within a string");
    line.assign(object.begin() + static_cast<std::ptrdiff_t>(at),
                object.begin() + static_cast<std::ptrdiff_t>(at + length));
    at += length;
  }
  return lines;
}

bool is_heading(const std::string& line) {
  for (const char* word : {"CHAPTER ", "Chapter ", "VOLUME "}) {
    if (line.rfind(word, 0) == 0) return true;
  }
  return false;
}

// Runs of blank lines become one; a heading begins a document unless only headings came since the last one.
void print(const std::vector<std::string>& lines) {
  bool blank = false;
  bool only_headings = true;
  bool first = true;
  for (const std::string& line : lines) {
    if (line.find_first_not_of(' ') == std::string::npos) {
      blank = !first;
      continue;
    }
    const bool cut = is_heading(line) && !only_headings;
    std::fputs(cut ? "\n\n" : blank ? "\n" : "", stdout);
    std::puts(line.c_str());
    only_headings = is_heading(line) && (cut || only_headings);
    blank = first = false;
  }
  std::fputs("\n\n", stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("usage: rdb_text Rdata.rdb [first line of one novel]\n", stderr), 2;
  std::ifstream input(argv[1], std::ios::binary);
  const Bytes file{std::istreambuf_iterator<char>(input), {}};
  try {
    bool found = false;
    for (size_t at = 0; at < file.size();) {
      const std::vector<std::string> lines = lines_of(next_object(file, at));
      if (lines.empty() || (argc > 2 && lines[0] != argv[2])) continue;
      print(lines);
      found = true;
    }
    if (!found) throw std::string("no such novel");
  } catch (const std::string& fault) {
    return std::fprintf(stderr, "%s: %s\n", argv[1], fault.c_str()), 5;
  }
  return 0;
}
