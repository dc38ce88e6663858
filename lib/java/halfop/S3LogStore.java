package halfop;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.IOUtils;

/**
 * Delta's log on s3a://, for any number of drivers: S3 itself refuses a commit where another's is (If-None-Match). Delta's
 * own store for S3 looks before it writes, which is safe within one JVM only. A Hadoop that cannot ask S3 for that fails.
 */
public class S3LogStore extends S3SingleDriverLogStore {
    private static final String IF_ABSENT = "fs.option.create.conditional.overwrite";

    public S3LogStore(Configuration conf) {
        super(conf);
    }

    public void write(Path path, Iterator<String> lines, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, lines, overwrite, conf);
            return;
        }
        FileSystem fs = path.getFileSystem(conf);
        byte[] content = joined(lines);
        try {
            create(fs, path, content);
        } catch (IOException error) { // refused; or done, and the answer was lost: a commit's content is like no other's
            if (!fs.exists(path)) {
                throw error;
            }
            if (!Arrays.equals(content, read(fs, path))) {
                throw new FileAlreadyExistsException(path.toString());
            }
        }
    }

    private static byte[] joined(Iterator<String> lines) throws IOException {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        while (lines.hasNext()) {
            content.write(((String) lines.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        return content.toByteArray();
    }

    private static void create(FileSystem fs, Path path, byte[] content) throws IOException {
        FSDataOutputStream out = (FSDataOutputStream) fs.createFile(path).overwrite(false).must(IF_ABSENT, true).build();
        out.write(content);
        out.close();
    }

    private static byte[] read(FileSystem fs, Path path) throws IOException {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        IOUtils.copyBytes(fs.open(path), content, 65536, true);
        return content.toByteArray();
    }
}
