package org.apache.hadoop.fs.local;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.Path;

/** The local file system on a slow day: between the look whether a commit is there already and the rename that makes it, time passes. */
public class SlowRename extends ChecksumFs {
    public SlowRename(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(new Raw(conf));
    }

    private static class Raw extends RawLocalFs {
        private Raw(Configuration conf) throws IOException, URISyntaxException {
            super(conf);
        }

        @Override
        public void renameInternal(Path source, Path target) throws IOException {
            if (target.getParent().getName().equals("_delta_log")) {
                try {
                    Thread.sleep(1500);
                } catch (InterruptedException e) {
                    throw new IOException(e);
                }
            }
            super.renameInternal(source, target);
        }
    }
}
