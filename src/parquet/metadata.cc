#include "parquet/metadata.h"

#include <utility>

#include "parquet/thrift_reader.h"

namespace bl::parquet {
namespace {

using Field = ThriftReader::Field;

constexpr std::int32_t kByteArray = 6;   // Type.BYTE_ARRAY
constexpr std::int32_t kUtf8 = 0;        // ConvertedType.UTF8
constexpr std::int32_t kStringType = 1;  // LogicalType.STRING
constexpr int kMaxSchemaDepth = 64;

struct SchemaElement {
  std::string name;
  std::int32_t type = -1;
  std::int32_t repetition = 0;  // 0: required, 1: optional, 2: repeated
  std::int32_t children = 0;
  std::int32_t converted_type = -1;
  std::int32_t logical_type = -1;
};

std::int64_t read_size(ThriftReader& reader, const Field& field) {
  const std::int64_t value = reader.read_int(field);
  if (value < 0) reader.fail_damaged("a size is negative");
  return value;
}

SchemaElement read_element(ThriftReader& reader) {
  SchemaElement element;
  reader.read_struct([&](const Field& field) {
    switch (field.id) {
      case 1:
        element.type = reader.read_i32(field);
        return;
      case 3:
        element.repetition = reader.read_i32(field);
        return;
      case 4:
        element.name = reader.read_text(field);
        return;
      case 5:
        element.children = reader.read_i32(field);
        return;
      case 6:
        element.converted_type = reader.read_i32(field);
        return;
      case 10:
        // A union: a struct of one field, whose number says which type it is.
        if (field.type != ThriftType::kStruct) reader.fail_damaged("a type is missing");
        return reader.read_struct([&](const Field& type) {
          element.logical_type = type.id;
          reader.skip(type);
        });
      default:
        reader.skip(field);
    }
  });
  return element;
}

Column flat_or_nested(const SchemaElement& element, const std::string& above) {
  const bool has_types = element.converted_type >= 0 || element.logical_type >= 0;
  Column column;
  column.name = above + element.name;
  column.is_flat = above.empty() && element.repetition != 2;
  column.is_optional = element.repetition == 1;
  column.is_text = element.type == kByteArray &&
                   (element.converted_type == kUtf8 || element.logical_type == kStringType);
  column.is_bytes = column.is_text || (element.type == kByteArray && !has_types);
  return column;
}

// Turns the tree, which is listed depth first, into its leaves.
class Leaves {
 public:
  Leaves(const ThriftReader& reader, std::span<const SchemaElement> schema)
      : reader_(reader), schema_(schema) {}

  std::vector<Column> all() {
    if (schema_.empty()) reader_.fail_damaged("the schema is empty");
    add_children(schema_[next_++].children, "", 0);
    if (next_ != schema_.size()) reader_.fail_damaged("the schema is not one tree");
    return std::move(columns_);
  }

 private:
  void add_children(std::int32_t count, const std::string& above, int depth) {
    if (depth > kMaxSchemaDepth) reader_.fail_damaged("the schema is nested too deeply");
    for (std::int32_t i = 0; i < count; ++i) {
      if (next_ >= schema_.size()) reader_.fail_damaged("the schema is not one tree");
      const SchemaElement& element = schema_[next_++];
      if (element.children > 0) {
        add_children(element.children, above + element.name + ".", depth + 1);
      } else {
        columns_.push_back(flat_or_nested(element, above));
      }
    }
  }

  const ThriftReader& reader_;
  std::span<const SchemaElement> schema_;
  std::size_t next_ = 0;
  std::vector<Column> columns_;
};

void read_chunk_metadata(ThriftReader& reader, ColumnChunk& chunk) {
  reader.read_struct([&](const Field& field) {
    switch (field.id) {
      case 4:
        chunk.codec = reader.read_i32(field);
        return;
      case 5:
        chunk.values = read_size(reader, field);
        return;
      case 7:
        chunk.size = read_size(reader, field);
        return;
      case 9:
        chunk.data_page = read_size(reader, field);
        return;
      case 11:
        chunk.dictionary_page = read_size(reader, field);
        return;
      default:
        reader.skip(field);
    }
  });
}

ColumnChunk read_chunk(ThriftReader& reader) {
  ColumnChunk chunk;
  bool has_metadata = false;
  reader.read_struct([&](const Field& field) {
    if (field.id == 1) {
      chunk.is_elsewhere = !reader.read_text(field).empty();
    } else if (field.id == 3 && field.type == ThriftType::kStruct) {
      has_metadata = true;
      read_chunk_metadata(reader, chunk);
    } else {
      reader.skip(field);
    }
  });
  if (!has_metadata) reader.fail_damaged("a column has no metadata, or it is encrypted");
  return chunk;
}

RowGroup read_group(ThriftReader& reader) {
  RowGroup group;
  reader.read_struct([&](const Field& field) {
    if (field.id == 1) {
      reader.read_list(field, [&](const Field& element) {
        if (element.type != ThriftType::kStruct) reader.fail_damaged("a column is missing");
        group.columns.push_back(read_chunk(reader));
      });
    } else if (field.id == 3) {
      group.rows = read_size(reader, field);
    } else {
      reader.skip(field);
    }
  });
  return group;
}

void read_page_details(ThriftReader& reader, PageHeader& header) {
  const bool is_v2 = header.type == static_cast<std::int32_t>(PageType::kDataV2);
  reader.read_struct([&](const Field& field) {
    if (field.id == 1) {
      header.values = read_size(reader, field);
    } else if (field.id == (is_v2 ? 4 : 2)) {
      header.encoding = reader.read_i32(field);
    } else if (field.id == 3 && header.type == static_cast<std::int32_t>(PageType::kData)) {
      header.level_encoding = reader.read_i32(field);
    } else if (field.id == 5 && is_v2) {
      header.definition_bytes = read_size(reader, field);
    } else if (field.id == 6 && is_v2) {
      header.repetition_bytes = read_size(reader, field);
    } else if (field.id == 7 && is_v2) {
      header.is_compressed = reader.read_bool(field);
    } else {
      reader.skip(field);
    }
  });
}

// The field of the page header that says more about a page of this type; -1: none.
std::int32_t details_field(std::int32_t type) {
  switch (static_cast<PageType>(type)) {
    case PageType::kData:
      return 5;
    case PageType::kDictionary:
      return 7;
    case PageType::kDataV2:
      return 8;
    case PageType::kIndex:
      break;
  }
  return -1;
}

}  // namespace

FileMetadata read_metadata(std::span<const std::byte> bytes, const std::string& what) {
  ThriftReader reader(bytes, what);
  std::vector<SchemaElement> schema;
  FileMetadata metadata;
  reader.read_struct([&](const Field& field) {
    if (field.id != 2 && field.id != 4) return reader.skip(field);
    reader.read_list(field, [&](const Field& element) {
      if (element.type != ThriftType::kStruct) reader.fail_damaged("a struct is missing");
      if (field.id == 2) {
        schema.push_back(read_element(reader));
      } else {
        metadata.groups.push_back(read_group(reader));
      }
    });
  });
  metadata.columns = Leaves(reader, schema).all();
  for (const RowGroup& group : metadata.groups) {
    if (group.columns.size() != metadata.columns.size()) {
      reader.fail_damaged("a row group has another number of columns than the schema");
    }
  }
  return metadata;
}

PageHeader read_page_header(std::span<const std::byte> bytes, const std::string& what) {
  ThriftReader reader(bytes, what);
  PageHeader header;
  bool has_details = false;
  reader.read_struct([&](const Field& field) {
    if (field.id == 1) {
      header.type = reader.read_i32(field);
    } else if (field.id == 2) {
      header.size = read_size(reader, field);
    } else if (field.id == 3) {
      header.compressed_size = read_size(reader, field);
    } else if (field.id == details_field(header.type) && field.type == ThriftType::kStruct) {
      has_details = true;
      read_page_details(reader, header);
    } else {
      reader.skip(field);
    }
  });
  if (!has_details && header.type != static_cast<std::int32_t>(PageType::kIndex)) {
    reader.fail_damaged("a page says nothing of its values");
  }
  header.header_bytes = reader.position();
  return header;
}

}  // namespace bl::parquet
