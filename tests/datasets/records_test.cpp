#include "datasets/records.h"

#include "tests/datasets/support.h"

namespace kvarena::datasets {
namespace {

std::vector<std::string> texts(RecordReader reader) {
  std::vector<std::string> found;
  while (auto record = reader.next()) found.push_back(record->text);
  return found;
}

std::string read_error(const std::string& content, size_t bound = kMaxRowBytes) {
  const TemporaryFile file("rows.jsonl", content);
  const std::string message = error_of([&] {
    RecordReader reader(file.path(), bound);
    while (auto record = reader.next()) (void)parse_object(*record);
  });
  return message.starts_with(file.path().string()) ? message.substr(file.path().string().size()) : message;
}

TEST(RecordReader, ReadsLinesWithBlankLinesCarriageReturnsAndByteOrderMark) {
  const TemporaryFile file("rows.jsonl", "\xEF\xBB\xBF{\"a\":1}\r\n\n  \n{\"a\":2}\n{\"a\":3}");
  EXPECT_EQ(texts(RecordReader(file.path())), (std::vector<std::string>{"{\"a\":1}", "{\"a\":2}", "{\"a\":3}"}));
}

TEST(RecordReader, ReadsTheElementsOfAnArrayOneByOne) {
  const TemporaryFile file("rows.json", "\n[ {\"a\": \"]},{\\\"\"},\n\n {\"b\": [1, {\"c\": 2}]} ]\n");
  RecordReader reader(file.path());
  const auto first = reader.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(parse_object(*first)["a"], "]},{\"");
  const auto second = reader.next();
  ASSERT_TRUE(second);
  EXPECT_EQ(parse_object(*second)["b"][1]["c"], 2);
  EXPECT_TRUE(second->place.ends_with(":4"));
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.next());
}

TEST(RecordReader, AnEmptyFileAndAnEmptyArrayHaveNoRows) {
  const TemporaryFile file("rows.jsonl", "");
  const TemporaryFile array("rows.json", " [ ] ");
  EXPECT_TRUE(texts(RecordReader(file.path())).empty());
  EXPECT_TRUE(texts(RecordReader(array.path())).empty());
}

TEST(RecordReader, NamesFileAndLineOfTextThatIsNotJson) {
  const std::string message = read_error("{\"a\": 1}\n{\"a\": 2,}\n");
  EXPECT_TRUE(message.starts_with(":2: found text that is not JSON at column 9")) << message;
  EXPECT_TRUE(read_error("{\"a\": 1}\n17\n").starts_with(":2: found JSON number, expected one JSON object"));
}

TEST(RecordReader, NamesLineAndColumnOfBytesThatAreNotUtf8) {
  const std::string message = read_error("{\"a\": 1}\n{\"a\": \"caf\xE9\"}\n");
  EXPECT_TRUE(message.starts_with(":2: found byte 0xE9 at column 11, expected UTF-8")) << message;
}

TEST(RecordReader, NamesTheLineWhereAnArrayBreaksOff) {
  EXPECT_TRUE(read_error("[\n{\"a\": 1},\n{\"a\": 2").starts_with(":3: found end of file, expected `]`"));
  EXPECT_TRUE(read_error("[\n{\"a\": 1},\n]").starts_with(":3: found ], expected a JSON object"));
}

TEST(RecordReader, RefusesALineOf200MegabytesWithoutHoldingIt) {
  const TemporaryFile file("long.jsonl", "{\"a\": 1}\n");
  std::filesystem::resize_file(file.path(), size_t{200} << 20);  // zero bytes: one long line after the first
  RecordReader reader(file.path());
  ASSERT_TRUE(reader.next());
  const std::string message = error_of([&] { (void)reader.next(); });
  EXPECT_NE(message.find(":2: found a row of more than 67108864 bytes"), std::string::npos) << message;
}

TEST(RecordReader, BoundsTheElementsOfAnArrayToo) {
  EXPECT_TRUE(read_error("[{\"a\": 1},\n{\"a\": \"0123456789\"}]", 12).starts_with(":2: found a row of more than 12"));
}

TEST(RecordReader, SaysWhyAFileCannotBeRead) {
  EXPECT_NE(error_of([] { RecordReader("/no/such/file.jsonl"); }).find("No such file"), std::string::npos);
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  EXPECT_NE(error_of([&] { (void)RecordReader{folder}; }).find("a folder"), std::string::npos);
}

TEST(Fields, MissingAndMistypedFieldsNamePlaceAndField) {
  const Record record{.text = R"({"contxt": "x", "answers": "no list", "length": "3"})", .place = "qasper.jsonl:17"};
  const Row row = parse_object(record);
  EXPECT_EQ(
      error_of([&] { (void)string_field(row, "context", record.place); }),
      "qasper.jsonl:17: found a row without \"context\", expected the field \"context\"; did you mean \"contxt\"?");
  EXPECT_NE(error_of([&] { (void)strings_field(row, "answers", record.place); }).find("a list of strings"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)integer_field(row, "length", record.place); }).find("\"length\" is a JSON string"),
            std::string::npos);
}

TEST(FindBadUtf8, FollowsTheUnicodeTableOfWellFormedBytes) {
  for (const char* good : {"", "abc", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF", "\xF0\x90\x80\x80",
                           "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(find_bad_utf8(good), std::string_view::npos) << good;
  }
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xFF"}) {
    EXPECT_EQ(find_bad_utf8(bad), 0u) << bad;
    EXPECT_EQ(find_bad_utf8(std::string("ok") + bad), 2u);
  }
}

}  // namespace
}  // namespace kvarena::datasets
